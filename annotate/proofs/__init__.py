"""The five things a valid window has shown, one module each: a case and the rules' answers in, a state with its words out."""
