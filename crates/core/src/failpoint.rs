/// A place where a test can stop, delay or kill the process: `FAILPOINTS=name=return` kills it
/// there as a power cut would, without unwinding. Nothing in a build without the feature.
#[macro_export]
macro_rules! fail_point {
    ($name:literal) => {
        ::fail::fail_point!($name, |_| std::process::abort());
    };
}
