/// A text from outside as one short line, for logs and tables: cut to `most` characters, and
/// control characters written as Rust writes them (`\n`, `\u{1b}`).
pub fn one_line(text: &str, most: usize) -> String {
    let mut line = String::new();
    for character in text.chars().take(most) {
        if character.is_control() {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_cannot_begin_a_line_of_its_own_or_colour_a_terminal() {
        assert_eq!(one_line("a\nb\r\u{1b}[31mä", 256), "a\\nb\\r\\u{1b}[31mä");
        assert_eq!(one_line(&"ä".repeat(300), 256).chars().count(), 256);
    }
}
