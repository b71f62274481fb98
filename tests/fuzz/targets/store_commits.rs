#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| berth_store::fuzz::commits(data));
