//! Names the shared library by the version of its interface, so that a program finds the version it was linked with.
//! Keeps the library loaded (`nodelete`), because its threads and fork handlers cannot be unloaded.

include!("src/abi.rs");

fn main() {
    println!("cargo:rerun-if-changed=src/abi.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,liblimitset.so.{LIMITSET_ABI_VERSION}");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
