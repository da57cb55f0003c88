"""Windows around other projects' harnesses: each module opens windows around one harness's timed part and passes on its times."""
