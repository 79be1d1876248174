"""What tests/peers/compare and tests/peers/sweep are made of; Python's standard library only."""
