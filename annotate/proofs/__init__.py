"""The five proofs of a valid window, one module each: ``prove`` turns a case and the rules' answers into a proof's state."""
