"""The ranks of torchrun: how they meet and form a process group."""
