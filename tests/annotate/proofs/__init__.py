"""The five proofs, on made, simulated and recorded windows."""
