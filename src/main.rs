//! `cargo vram`: budgets for the GPU memory of Burn models.

fn main() -> std::process::ExitCode {
    cargo_vram::cli::main()
}
