"""What every server of ours is made of: sockets, a bounded protocol, a process with signals, a log."""
