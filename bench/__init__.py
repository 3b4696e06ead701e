"""Figures and chaos."""
