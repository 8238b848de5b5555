//! The f64 reference.
