"""What all our servers share: sockets, a bounded protocol, a process with signals, a log."""
