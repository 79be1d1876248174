//! Finds libiscsi with pkg-config and generates bindings from its own headers.
use std::path::Path;

const HEADERS: &str = "#include <stdint.h>\n#include <stddef.h>\n#include <stdbool.h>\n\
    #include <iscsi/iscsi.h>\n#include <iscsi/scsi-lowlevel.h>\n";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let library = pkg_config::Config::new()
        .atleast_version("1.19")
        .probe("libiscsi")
        .unwrap_or_else(|error| {
            panic!("libiscsi 1.19 or newer is needed (Debian: apt install libiscsi-dev): {error}")
        });
    let out = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    bindgen::Builder::default()
        .header_contents("libiscsi.h", HEADERS)
        .clang_args(
            library
                .include_paths
                .iter()
                .map(|path| format!("-I{}", path.display())),
        )
        .allowlist_function("(iscsi|scsi)_.*")
        .allowlist_type("(iscsi|scsi)_.*")
        .allowlist_var("(ISCSI|SCSI)_.*")
        .generate()
        .expect("bindgen reads libiscsi's headers (Debian: apt install libclang-dev)")
        .write_to_file(Path::new(&out).join("bindings.rs"))
        .expect("OUT_DIR is writable");
}
