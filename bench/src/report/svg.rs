//! Bars, drawn by hand: readable on light and on dark pages, and as text.

use crate::suites::Contender;
use std::fmt::Write;

const WIDTH: f64 = 760.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 60.0;
const BAR: f64 = 14.0;
const GAP: f64 = 12.0;
const TOP: f64 = 64.0;

/// Colours that differ in lightness too, and stand on white as well as on black.
const STYLE: &str = "\
text{font:12px system-ui,sans-serif;fill:#24292f}.title{font-size:15px;font-weight:600}.note,.value{fill:#57606a}\
.axis{stroke:#8c959f;stroke-width:1}.mark{stroke:#8c959f;stroke-dasharray:4 3}\
.limit{fill:#8c959f}.ours{fill:#1f6feb}.embedded{fill:#0d9488}.adapter{fill:#7c3aed}.rmcp{fill:#d97706}.store{fill:#b45309}\
.super{fill:#9333ea}.proxy{fill:#db2777}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.note,.value{fill:#9da7b3}}";

/// A plot of horizontal bars.
pub(super) struct Bars {
    pub(super) title: &'static str,
    pub(super) note: &'static str,
    /// Where a dashed line stands.
    pub(super) mark: Option<f64>,
    pub(super) show: fn(f64) -> String,
    pub(super) groups: Vec<Group>,
}

/// Bars that belong together.
pub(super) struct Group {
    pub(super) name: String,
    pub(super) bars: Vec<(Contender, f64)>,
}

impl Bars {
    pub(super) fn draw(&self) -> String {
        let values = self
            .groups
            .iter()
            .flat_map(|group| group.bars.iter().map(|(_, value)| *value));
        let most = values.chain(self.mark).fold(f64::MIN_POSITIVE, f64::max);
        let scale = (WIDTH - LEFT - RIGHT) / most;
        let mut body = String::new();
        let mut y = TOP;
        for group in &self.groups {
            let height = group.bars.len() as f64 * BAR;
            let _ = writeln!(
                body,
                r#"<text x="{:.0}" y="{:.1}" text-anchor="end">{}</text>"#,
                LEFT - 8.0,
                y + height / 2.0 + 4.0,
                escaped(&group.name)
            );
            for (who, value) in &group.bars {
                let _ = writeln!(
                    body,
                    r#"<rect class="{}" x="{LEFT}" y="{:.1}" width="{:.1}" height="{}"><title>{}, {}: {}</title></rect><text class="value" x="{:.1}" y="{:.1}">{}</text>"#,
                    class(*who),
                    y + 1.0,
                    (value * scale).max(1.0),
                    BAR - 2.0,
                    escaped(&group.name),
                    who.name(),
                    (self.show)(*value),
                    LEFT + value * scale + 4.0,
                    y + BAR - 3.5,
                    (self.show)(*value)
                );
                y += BAR;
            }
            y += GAP;
        }
        let bottom = y;
        if let Some(mark) = self.mark {
            let x = LEFT + mark * scale;
            let _ = writeln!(
                body,
                r#"<line class="mark" x1="{x:.1}" x2="{x:.1}" y1="{TOP}" y2="{bottom:.1}"/>"#
            );
        }
        let _ = writeln!(
            body,
            r#"<line class="axis" x1="{LEFT}" x2="{LEFT}" y1="{TOP}" y2="{bottom:.1}"/>"#
        );
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{title}\">\n\
             <style>{STYLE}</style>\n<text class=\"title\" x=\"12\" y=\"22\">{title}</text>\n\
             <text class=\"note\" x=\"12\" y=\"40\">{note}</text>\n{legend}{body}</svg>\n",
            height = bottom + 8.0,
            title = escaped(self.title),
            note = escaped(self.note),
            legend = self.legend(),
        )
    }

    fn legend(&self) -> String {
        let mut shown: Vec<Contender> = Vec::new();
        for (who, _) in self.groups.iter().flat_map(|group| &group.bars) {
            if !shown.contains(who) {
                shown.push(*who);
            }
        }
        let mut out = String::new();
        let mut x = LEFT;
        for who in shown {
            let _ = writeln!(
                out,
                r#"<rect class="{}" x="{x:.0}" y="48" width="10" height="10"/><text x="{:.0}" y="57">{}</text>"#,
                class(who),
                x + 14.0,
                who.name()
            );
            x += 30.0 + who.name().len() as f64 * 6.6;
        }
        out
    }
}

fn class(who: Contender) -> &'static str {
    match who {
        Contender::Limit => "limit",
        Contender::Memory | Contender::Gateway => "ours",
        Contender::Embedded | Contender::GatewayEmbedded => "embedded",
        Contender::Adapter => "adapter",
        Contender::Rmcp => "rmcp",
        Contender::RmcpStore => "store",
        Contender::Supergateway => "super",
        Contender::McpProxy => "proxy",
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bar_is_drawn_and_named() {
        let group = |name: &str, value| Group {
            name: name.to_owned(),
            bars: vec![(Contender::Limit, 1.0), (Contender::Memory, value)],
        };
        let bars = Bars {
            title: "Less < more",
            note: "",
            mark: Some(1.0),
            show: |value| format!("{value:.2}"),
            groups: vec![group("one", 0.5), group("two", 0.25)],
        };
        let svg = bars.draw();
        assert_eq!(svg.matches("<title>").count(), 4);
        assert!(svg.contains("two, rethread: 0.25") && svg.contains("Less &lt; more"));
        assert_eq!(svg.matches(">rethread</text>").count(), 1, "one entry in the legend");
    }
}
