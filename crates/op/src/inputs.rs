//! Seeded inputs and owned tensors.
