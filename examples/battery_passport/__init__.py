"""Battery passports: jobs that make a signed passport with a QR code from documents."""
