use comfy_table::{Table, presets};

use crate::text;

/// Columns two spaces apart, a header in capitals, no borders, no wrapping: it reads well and
/// `awk` reads it too. An empty cell is `-`, so that columns keep their number.
pub(crate) fn table<const COLUMNS: usize>(
    header: [&str; COLUMNS],
    rows: impl IntoIterator<Item = [String; COLUMNS]>,
) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header);
    for row in rows {
        table.add_row(row.map(|cell| if cell.is_empty() { "-".into() } else { cell }));
    }
    draw(table)
}

/// Names on the left, values on the right.
pub(crate) fn pairs<'a>(rows: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    for (name, value) in rows {
        table.add_row([name.to_owned(), value]);
    }
    draw(table)
}

fn draw(mut table: Table) -> String {
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let mut drawn = String::new();
    for line in table.lines() {
        drawn.push_str(text::one_line(&line).trim_end());
        drawn.push('\n');
    }
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_cell_keeps_its_column() {
        let drawn = table(["A", "LONGER"], [["x".into(), String::new()]]);
        assert_eq!(drawn, "A  LONGER\nx  -\n");
    }
}
