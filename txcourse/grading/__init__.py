"""Grading: submissions are read, run apart, marked, and returned as marks and feedback."""
