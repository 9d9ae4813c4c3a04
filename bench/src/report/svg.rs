//! A range plot as SVG: a dot for the median and a bar for the quartiles. Readable on light and dark pages.

use crate::measure::Spread;
use crate::suites::ServerKind;
use std::fmt::Write;

const WIDTH: f64 = 800.0;
/// Space for the names of the servers.
const LEFT: f64 = 236.0;
/// Space for the value of the longest row.
const RIGHT: f64 = 64.0;
const TOP: f64 = 60.0;
const ROW: f64 = 18.0;
const GROUP_TITLE: f64 = 22.0;
const GROUP_GAP: f64 = 8.0;
const AXIS: f64 = 24.0;
/// Ticks of the axis, at most.
const MAX_TICKS: f64 = 8.0;

/// Colours with different lightness and enough contrast on white and on black.
const STYLE: &str = "\
text{font:12px system-ui,sans-serif;fill:#24292f}.title{font-size:15px;font-weight:600}.group{font-weight:600}\
.note,.tick,.value{fill:#57606a}.grid{stroke:#8c959f;stroke-opacity:.25}.reference{stroke:#57606a;stroke-dasharray:4 3}\
.range{stroke-width:8;stroke-opacity:.4}.median{stroke:none}\
.hyper{fill:#8c959f;stroke:#8c959f}.rethread{fill:#1f6feb;stroke:#1f6feb}.embedded{fill:#0d9488;stroke:#0d9488}\
.redis{fill:#be123c;stroke:#be123c}.adapter{fill:#7c3aed;stroke:#7c3aed}.rmcp{fill:#d97706;stroke:#d97706}.store{fill:#b45309;stroke:#b45309}\
.super{fill:#9333ea;stroke:#9333ea}.proxy{fill:#db2777;stroke:#db2777}.proxy-npm{fill:#ea580c;stroke:#ea580c}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.note,.tick,.value{fill:#9da7b3}.reference{stroke:#9da7b3}}";

pub(super) struct RangePlot {
    pub(super) title: &'static str,
    /// Value and label of a dashed line.
    pub(super) reference: Option<(f64, &'static str)>,
    pub(super) show: fn(f64) -> String,
    pub(super) groups: Vec<Group>,
}

/// The rows of one case.
pub(super) struct Group {
    pub(super) name: String,
    pub(super) rows: Vec<(ServerKind, Spread)>,
}

impl RangePlot {
    pub(super) fn draw(&self) -> String {
        let step = self.tick_step();
        let ticks = (self.max() / step).ceil().max(1.0);
        let scale = (WIDTH - LEFT - RIGHT) / (ticks * step);
        let x = |value: f64| LEFT + value * scale;
        let mut rows = String::new();
        let mut y = TOP;
        for group in &self.groups {
            let _ = writeln!(
                rows,
                r#"<text class="group" x="12" y="{:.1}">{}</text>"#,
                y + 15.0,
                escape(&group.name)
            );
            y += GROUP_TITLE;
            for (kind, spread) in &group.rows {
                rows += &self.row(&group.name, *kind, *spread, y, x);
                y += ROW;
            }
            y += GROUP_GAP;
        }
        let bottom = y;
        let mut grid = String::new();
        for tick in 0..=ticks as u32 {
            let value = f64::from(tick) * step;
            let _ = writeln!(
                grid,
                r#"<line class="grid" x1="{x:.1}" x2="{x:.1}" y1="{TOP}" y2="{bottom:.1}"/><text class="tick" x="{x:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
                bottom + 14.0,
                tick_label(value, step),
                x = x(value),
            );
        }
        if let Some((value, label)) = self.reference {
            let _ = writeln!(
                grid,
                r#"<line class="reference" x1="{x:.1}" x2="{x:.1}" y1="{TOP}" y2="{bottom:.1}"/><text class="note" x="{x:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
                TOP - 4.0,
                escape(label),
                x = x(value),
            );
        }
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{title}\">\n\
             <style>{STYLE}</style>\n<text class=\"title\" x=\"12\" y=\"22\">{title}</text>\n\
             <text class=\"note\" x=\"12\" y=\"40\">Dot: median. Bar: middle half of the rounds.</text>\n{grid}{rows}</svg>\n",
            height = bottom + AXIS,
            title = escape(self.title),
        )
    }

    fn row(&self, group: &str, kind: ServerKind, spread: Spread, top: f64, x: impl Fn(f64) -> f64) -> String {
        let middle = top + ROW / 2.0;
        let class = class(kind);
        format!(
            "<g><title>{group}, {name}: {median}, quartiles {q1} to {q3}</title>\
             <text x=\"{label:.0}\" y=\"{baseline:.1}\" text-anchor=\"end\">{name}</text>\
             <line class=\"range {class}\" x1=\"{left:.1}\" x2=\"{right:.1}\" y1=\"{middle:.1}\" y2=\"{middle:.1}\"/>\
             <circle class=\"median {class}\" cx=\"{dot:.1}\" cy=\"{middle:.1}\" r=\"4\"/>\
             <text class=\"value\" x=\"{value:.1}\" y=\"{baseline:.1}\">{median}</text></g>\n",
            group = escape(group),
            name = escape(kind.title()),
            median = (self.show)(spread.median),
            q1 = (self.show)(spread.q1),
            q3 = (self.show)(spread.q3),
            label = LEFT - 10.0,
            baseline = middle + 4.0,
            left = x(spread.q1),
            right = x(spread.q3),
            dot = x(spread.median),
            value = (x(spread.q3)).max(x(spread.median) + 4.0) + 6.0,
        )
    }

    /// The largest value that must be visible.
    fn max(&self) -> f64 {
        let rows = self.groups.iter().flat_map(|group| &group.rows);
        let values = rows.map(|(_, spread)| spread.q3.max(spread.median));
        let reference = self.reference.map(|(value, _)| value);
        values.chain(reference).fold(f64::MIN_POSITIVE, f64::max)
    }

    /// The smallest step of the form 1, 2 or 5 times a power of ten that needs few ticks.
    fn tick_step(&self) -> f64 {
        let max = self.max();
        let power = 10f64.powf((max / MAX_TICKS).log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
        let step = steps.into_iter().find(|step| max / step <= MAX_TICKS);
        step.unwrap_or(10.0 * power)
    }
}

fn tick_label(value: f64, step: f64) -> String {
    let decimals = if step >= 1.0 {
        0
    } else {
        (-step.log10()).ceil() as usize
    };
    format!("{value:.decimals$}")
}

fn class(kind: ServerKind) -> &'static str {
    match kind {
        ServerKind::BareHyper => "hyper",
        ServerKind::Rethread | ServerKind::Gateway => "rethread",
        ServerKind::RethreadEmbedded | ServerKind::GatewayEmbedded => "embedded",
        ServerKind::RethreadRedis
        | ServerKind::TwoNodes
        | ServerKind::ThreeNodes
        | ServerKind::OwnerNode
        | ServerKind::ForwardingNode => "redis",
        ServerKind::RethreadRmcp | ServerKind::GatewayObserved => "adapter",
        ServerKind::GatewayStateless => "redis",
        ServerKind::RethreadStaticToken => "embedded",
        ServerKind::RethreadJwt => "redis",
        ServerKind::Rmcp => "rmcp",
        ServerKind::RmcpStore => "store",
        ServerKind::Supergateway => "super",
        ServerKind::McpProxy => "proxy",
        ServerKind::McpProxyNpm => "proxy-npm",
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(values: &[f64]) -> RangePlot {
        let spread = |median: f64| Spread {
            median,
            q1: median * 0.9,
            q3: median * 1.1,
        };
        let group = |value: &f64| Group {
            name: format!("case <{value}>"),
            rows: vec![
                (ServerKind::BareHyper, spread(1.0)),
                (ServerKind::Rethread, spread(*value)),
            ],
        };
        RangePlot {
            title: "Less < more",
            reference: Some((1.0, "bare hyper")),
            show: |value| format!("{value:.2}"),
            groups: values.iter().map(group).collect(),
        }
    }

    #[test]
    fn every_row_has_a_name_a_range_and_a_value() {
        let svg = plot(&[0.5, 0.25]).draw();
        assert_eq!(svg.matches("class=\"range ").count(), 4);
        assert_eq!(svg.matches("<circle").count(), 4);
        assert_eq!(svg.matches(">rethread</text>").count(), 2);
        assert!(svg.contains("case &lt;0.25>, rethread: 0.25, quartiles 0.23 to 0.28"));
        assert!(svg.contains("Less &lt; more") && svg.contains(">bare hyper</text>"));
    }

    #[test]
    fn axis_has_few_round_ticks() {
        for (max, step) in [
            (1.0, 0.2),
            (0.9, 0.2),
            (4.0, 0.5),
            (38.0, 5.0),
            (66.0, 10.0),
            (700.0, 100.0),
        ] {
            assert!((plot(&[max / 1.1]).tick_step() - step).abs() < 1e-9, "{max}");
        }
        assert_eq!(
            (tick_label(0.5, 0.1), tick_label(20.0, 10.0)),
            ("0.5".to_owned(), "20".to_owned())
        );
        assert_eq!(tick_label(0.05, 0.05), "0.05");
    }
}
