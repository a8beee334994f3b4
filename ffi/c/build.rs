//! Names the shared library by the version of its interface, so that programs find the one they were linked with; and lets
//! it stay once it is loaded, because its threads and fork handlers do.

include!("src/abi.rs");

fn main() {
    println!("cargo:rerun-if-changed=src/abi.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,liblimitset.so.{LIMITSET_ABI_VERSION}");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
