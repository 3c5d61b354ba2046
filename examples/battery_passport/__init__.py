"""Battery passports: from a maker's documents to a signed passport with a QR code, job by job."""
