"""Mutants: small slips, put in one at a time, each of which a test or a rule must notice.

python -m tests.mutants [--only NAME …] [--part PART …] [--missing] [--processes N]
"""
