"""The ranks of torchrun: how they meet, watch each other and end together."""
