"""A request -> the first reason for which the real API refuses it, in the order of its checks."""
