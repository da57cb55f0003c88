"""Files and conversations of earlier versions, read and served by this one."""
