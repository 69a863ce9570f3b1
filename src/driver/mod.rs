//! The virtual CUDA driver.
