"""Flow control measured: what turns, limits and gates cost, and how well they keep places used."""
