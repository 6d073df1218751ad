"""Bytes <-> frames and JSON values, bounded in size."""
