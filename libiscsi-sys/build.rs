//! Finds libiscsi with pkg-config and generates bindings from its own headers.
//!
//! What is missing is said as one cargo error, with the package that brings it, rather than as a panic.
use std::path::Path;
use std::process::ExitCode;

const HEADERS: &str = "#include <stdint.h>\n#include <stddef.h>\n#include <stdbool.h>\n\
    #include <iscsi/iscsi.h>\n#include <iscsi/scsi-lowlevel.h>\n";

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed=build.rs");
    match generate() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            // A message is one line to cargo: what follows a line break would be lost.
            println!("cargo::error={}", message.replace('\n', " "));
            ExitCode::FAILURE
        }
    }
}

fn generate() -> Result<(), String> {
    let library = pkg_config::Config::new()
        .atleast_version("1.19")
        .probe("libiscsi")
        .map_err(|error| {
            format!(
                "libiscsi 1.19 or newer is needed for iSCSI (Debian: apt install libiscsi-dev pkg-config), \
                 or build with --no-default-features to leave iSCSI out: {error}"
            )
        })?;
    let includes = library
        .include_paths
        .iter()
        .map(|path| format!("-I{}", path.display()));
    let bindings = bindgen::Builder::default()
        .header_contents("libiscsi.h", HEADERS)
        .clang_args(includes)
        .allowlist_function("(iscsi|scsi)_.*")
        .allowlist_type("(iscsi|scsi)_.*")
        .allowlist_var("(ISCSI|SCSI)_.*")
        .generate()
        .map_err(|error| {
            format!(
                "the headers of libiscsi could not be read (Debian: apt install libclang-dev): {error}"
            )
        })?;
    let out = std::env::var("OUT_DIR").map_err(|error| format!("OUT_DIR: {error}"))?;
    bindings
        .write_to_file(Path::new(&out).join("bindings.rs"))
        .map_err(|error| format!("could not write the bindings into {out}: {error}"))
}
