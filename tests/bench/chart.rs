//! The chart of the README: plain SVG that reads on light and dark ground.

use std::fmt::Write;

use crate::{
    cell::{Family, Name, Operation},
    report::{Report, Row},
};

const WIDTH: f64 = 760.0;
/// Where bars begin; left of it are the names.
const LEFT: f64 = 150.0;
const BAR: f64 = 14.0;
const STEP: f64 = 19.0;

const STYLE: &str = "\
text{font:12px system-ui,sans-serif;fill:#1f2328}.head{font-weight:600}.note{fill:#59636e}\
.berth{fill:#1f6feb}.ptp{fill:#c4731a}.bridge{fill:#d29922}.floor{fill:#8b949e}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.note{fill:#9198a1}}";

struct Panel {
    title: &'static str,
    operation: Operation,
    parallel: usize,
    value: fn(&Row) -> f64,
    digits: usize,
}

const PANELS: [Panel; 4] = [
    Panel {
        title: "ADD, one at a time: median, ms (less is better)",
        operation: Operation::Add,
        parallel: 1,
        value: |row| row.median_ms,
        digits: 2,
    },
    Panel {
        title: "DEL, one at a time: median, ms (less is better)",
        operation: Operation::Del,
        parallel: 1,
        value: |row| row.median_ms,
        digits: 2,
    },
    Panel {
        title: "ADD, 32 at once: pods a second (more is better)",
        operation: Operation::Add,
        parallel: 32,
        value: |row| row.per_second,
        digits: 0,
    },
    Panel {
        title: "ADD, 32 at once: CPU time of each, plugin and daemon, ms (less is better)",
        operation: Operation::Add,
        parallel: 32,
        value: |row| row.cpu_ms,
        digits: 2,
    },
];

pub(crate) fn draw(report: &Report) -> String {
    let rows = report.rows();
    let (mut body, mut y) = (String::new(), 10.0);
    for panel in PANELS {
        y = panel.draw(&rows, y, &mut body);
    }
    let height = y + 8.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" \
         role=\"img\" aria-label=\"berth beside Debian's ptp and bridge plugins\">\n\
         <style>{STYLE}</style>\n{body}</svg>\n"
    )
}

impl Panel {
    /// Answers where the next one begins.
    fn draw(&self, rows: &[Row], top: f64, body: &mut String) -> f64 {
        let shown = |row: &&Row| {
            (row.operation, row.parallel, row.records) == (self.operation, self.parallel, 0)
        };
        let value = |name, family| {
            let mut found = rows.iter().filter(shown);
            found.find(|row| (row.subject, row.family) == (name, family)).map(self.value)
        };
        let bars: Vec<(Name, Family, f64)> = Name::ALL
            .into_iter()
            .flat_map(|name| Family::ALL.map(|family| (name, family)))
            .filter_map(|(name, family)| Some((name, family, value(name, family)?)))
            .collect();
        let most = bars.iter().map(|(_, _, value)| *value).fold(f64::MIN_POSITIVE, f64::max);
        let mut y = top + 14.0;
        line(body, &format!("<text class=\"head\" x=\"10\" y=\"{y}\">{}</text>", self.title));
        y += 8.0;
        for (name, family, value) in bars {
            let (class, middle) = (name.as_str(), y + BAR - 3.0);
            let length = (value / most * (WIDTH - LEFT - 80.0)).max(1.0);
            let label = format!("{} {}", described(name), family.as_str());
            line(body, &format!("<text x=\"10\" y=\"{middle}\">{label}</text>"));
            line(
                body,
                &format!(
                    "<rect class=\"{class}\" x=\"{LEFT}\" y=\"{y}\" width=\"{length:.1}\" \
                     height=\"{BAR}\" rx=\"2\"/>"
                ),
            );
            let (x, digits) = (LEFT + length + 6.0, self.digits);
            line(
                body,
                &format!(
                    "<text class=\"note\" x=\"{x:.1}\" y=\"{middle}\">{value:.digits$}</text>"
                ),
            );
            y += STEP;
        }
        y + 12.0
    }
}

fn described(name: Name) -> &'static str {
    match name {
        Name::Berth => "berth",
        Name::Ptp => "ptp+host-local",
        Name::Bridge => "bridge+host-local",
        Name::Floor => "floor",
    }
}

fn line(body: &mut String, text: &str) {
    writeln!(body, "{text}").expect("a string takes everything");
}
