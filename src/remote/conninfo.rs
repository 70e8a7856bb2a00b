//! Connection strings: what libpq reads in them, and what clients may see of them.
