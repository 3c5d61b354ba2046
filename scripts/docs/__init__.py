"""Builds the documentation: pages of docs/, and those that are made from the code."""
