//! The program `cargo-vram`: estimates and measures the GPU memory of Burn models, and compares it with budgets.

fn main() -> std::process::ExitCode {
    cargo_vram::cli::main()
}
