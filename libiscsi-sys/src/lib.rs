//! Raw bindings to libiscsi (<https://github.com/sahlberg/libiscsi>), generated at build time from
//! the installed headers. Nothing here is safe to call without reading them; the safe wrapper is
//! nasgauge's `target::iscsi`.
#![allow(
    missing_docs,
    unsafe_code,
    unsafe_op_in_unsafe_fn,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    clippy::all,
    clippy::pedantic,
    reason = "generated from C headers"
)]
include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
