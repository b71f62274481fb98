#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| berth_cni::fuzz::cni_args(data));
