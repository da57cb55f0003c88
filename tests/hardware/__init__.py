"""What only a real GPU can show: `make gpu` runs it, its data is committed and rendered into docs/VALIDATION.md."""
