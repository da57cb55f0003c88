"""The five proofs, on simulated and recorded windows."""
