/// `outer: inner: innermost`, each said once: error texts here never repeat their source.
pub fn chain(err: &(dyn std::error::Error + 'static)) -> String {
    let mut text = err.to_string();
    let mut cause = err.source();
    while let Some(err) = cause {
        let inner = err.to_string();
        // Some foreign errors print their source themselves.
        if !text.ends_with(&inner) {
            text.push_str(": ");
            text.push_str(&inner);
        }
        cause = err.source();
    }
    text
}
