//! How the tools are linked: what is loaded before `main` is most of the time of a small copy or sum.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let target = |key: &str| std::env::var(key).unwrap_or_default();
    if target("CARGO_CFG_TARGET_OS") != "linux" || target("CARGO_CFG_TARGET_ENV") != "gnu" {
        return;
    }
    // Wanted from the first, this symbol is found in the static libgcc_eh that `gnu::start` names, and the
    // shared libgcc_s (a tenth of a millisecond at each start) is not needed any more.
    println!("cargo:rustc-link-arg-bins=-Wl,-u,_Unwind_Resume");
    // As the genuine programs are linked: symbols are looked up when they are used.
    println!("cargo:rustc-link-arg-bins=-Wl,-z,lazy");
}
