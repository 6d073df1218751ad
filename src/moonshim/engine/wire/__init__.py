"""Bytes <-> frames and JSON values, with bounded size."""
