//! A strict parser of the Prometheus text format 0.0.4.
//!
//! It refuses what a lenient scraper would accept: samples without HELP and TYPE, groups that are not contiguous, repeated
//! series, and histograms whose buckets contradict each other.

use std::collections::{BTreeMap, BTreeSet};

/// One sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The name with its suffix.
    pub name: String,
    /// The labels, sorted.
    pub labels: BTreeMap<String, String>,
    /// The value.
    pub value: f64,
}

/// All samples of a scrape.
#[derive(Clone, Debug, Default)]
pub struct Scrape {
    /// In the order of the text.
    pub samples: Vec<Sample>,
    /// The kind of each metric.
    pub kinds: BTreeMap<String, String>,
}

impl Scrape {
    /// Parses a text. The error names the line.
    pub fn parse(text: &str) -> Result<Self, String> {
        Parser::default().parse(text)
    }

    /// The value of a series. `labels` must be all of its labels.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let wanted: BTreeMap<_, _> = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let found = self.samples.iter().find(|s| s.name == name && s.labels == wanted);
        found.map(|sample| sample.value)
    }

    /// The sum of all series of `name` that have these labels.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let has = |sample: &&Sample| {
            let fits = |(key, value): &(&str, &str)| sample.labels.get(*key).is_some_and(|found| found == value);
            sample.name == name && labels.iter().all(fits)
        };
        self.samples.iter().filter(has).map(|sample| sample.value).sum()
    }

    /// The number of series.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Whether there is no series.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }
}

#[derive(Default)]
struct Parser {
    scrape: Scrape,
    helped: BTreeSet<String>,
    current: Option<String>,
    series: BTreeSet<String>,
}

impl Parser {
    fn parse(mut self, text: &str) -> Result<Scrape, String> {
        if !text.is_empty() && !text.ends_with('\n') {
            return Err("the last line has no line feed".to_owned());
        }
        for (number, line) in text.lines().enumerate() {
            self.line(line)
                .map_err(|problem| format!("line {}: {problem}: {line}", number + 1))?;
        }
        check_histograms(&self.scrape)?;
        Ok(self.scrape)
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        if line.is_empty() {
            return Ok(());
        }
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, _) = rest.split_once(' ').ok_or("HELP without a text")?;
            check_name(name)?;
            if !self.helped.insert(name.to_owned()) {
                return Err("second HELP".to_owned());
            }
            self.current = Some(name.to_owned());
            return Ok(());
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').ok_or("TYPE without a kind")?;
            if self.current.as_deref() != Some(name) {
                return Err("TYPE does not follow the HELP of its metric".to_owned());
            }
            if !["counter", "gauge", "histogram"].contains(&kind) {
                return Err("unexpected kind".to_owned());
            }
            if self.scrape.kinds.insert(name.to_owned(), kind.to_owned()).is_some() {
                return Err("second TYPE".to_owned());
            }
            return Ok(());
        }
        if line.starts_with('#') {
            return Ok(());
        }
        let sample = parse_sample(line)?;
        let metric = self.current.clone().ok_or("a sample before HELP and TYPE")?;
        let kind = self.scrape.kinds.get(&metric).ok_or("a sample before TYPE")?;
        let suffix = sample
            .name
            .strip_prefix(&metric)
            .ok_or("a sample outside of its group")?;
        let fits = match kind.as_str() {
            "histogram" => ["_bucket", "_sum", "_count"].contains(&suffix),
            _ => suffix.is_empty(),
        };
        if !fits {
            return Err(format!("the name does not fit the {kind} {metric}"));
        }
        if kind == "counter" && !metric.ends_with("_total") {
            return Err("a counter ends with _total".to_owned());
        }
        if kind == "counter" && (sample.value < 0.0 || sample.value.is_nan()) {
            return Err("a counter is not negative".to_owned());
        }
        if !self.series.insert(format!("{}{:?}", sample.name, sample.labels)) {
            return Err("the series occurs twice".to_owned());
        }
        self.scrape.samples.push(sample);
        Ok(())
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let valid =
        |(at, c): (usize, char)| c.is_ascii_alphabetic() || c == '_' || c == ':' || (at > 0 && c.is_ascii_digit());
    match !name.is_empty() && name.chars().enumerate().all(valid) {
        true => Ok(()),
        false => Err(format!("`{name}` is not a name")),
    }
}

fn parse_sample(line: &str) -> Result<Sample, String> {
    let end = line.find(['{', ' ']).ok_or("no value")?;
    let (name, mut rest) = line.split_at(end);
    check_name(name)?;
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            if let Some(after) = rest.strip_prefix('}') {
                rest = after;
                break;
            }
            let (key, after) = rest.split_once("=\"").ok_or("a label without a value")?;
            check_name(key)?;
            let (value, after) = label_value(after)?;
            if labels.insert(key.to_owned(), value).is_some() {
                return Err("a label occurs twice".to_owned());
            }
            rest = match after.strip_prefix(',') {
                Some(more) if !more.starts_with('}') => more,
                Some(_) => return Err("a comma before the brace".to_owned()),
                None => after,
            };
        }
    }
    let value = rest.strip_prefix(' ').ok_or("no space in front of the value")?;
    let value = match value {
        "+Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        "NaN" => f64::NAN,
        value => value.parse().map_err(|_| "the value is not a number")?,
    };
    Ok(Sample {
        name: name.to_owned(),
        labels,
        value,
    })
}

/// A value up to its quote, and the rest behind it.
fn label_value(text: &str) -> Result<(String, &str), String> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((value, &text[at + 1..])),
            '\\' => match chars.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, escaped @ ('\\' | '"'))) => value.push(escaped),
                _ => return Err("an unknown escape".to_owned()),
            },
            c => value.push(c),
        }
    }
    Err("a label value without an end".to_owned())
}

fn check_histograms(scrape: &Scrape) -> Result<(), String> {
    let histograms = scrape.kinds.iter().filter(|(_, kind)| *kind == "histogram");
    for (metric, _) in histograms {
        let mut series: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        let bucket = format!("{metric}_bucket");
        for sample in scrape.samples.iter().filter(|sample| sample.name == bucket) {
            let mut labels = sample.labels.clone();
            let bound = labels
                .remove("le")
                .ok_or_else(|| format!("{metric}: a bucket without le"))?;
            let bound = if bound == "+Inf" {
                f64::INFINITY
            } else {
                bound.parse().map_err(|_| "le")?
            };
            series
                .entry(format!("{labels:?}"))
                .or_default()
                .push((bound, sample.value));
        }
        let of = |suffix: &str| -> BTreeMap<String, f64> {
            let name = format!("{metric}{suffix}");
            let samples = scrape.samples.iter().filter(|sample| sample.name == name);
            samples
                .map(|sample| (format!("{:?}", sample.labels), sample.value))
                .collect()
        };
        let (counts, sums) = (of("_count"), of("_sum"));
        for (labels, buckets) in &series {
            let rises = buckets
                .windows(2)
                .all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
            let last = buckets.last().copied().unwrap_or_default();
            if !rises || last.0 != f64::INFINITY || counts.get(labels) != Some(&last.1) || !sums.contains_key(labels) {
                return Err(format!(
                    "{metric}{labels}: the buckets contradict each other: {buckets:?}"
                ));
            }
        }
        if series.len() != counts.len() || series.len() != sums.len() {
            return Err(format!("{metric}: a histogram without buckets"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "# HELP a_total text\n# TYPE a_total counter\na_total{x=\"1\\\"\\n\"} 3\na_total 1\n\n\
                        # HELP h text\n# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 3.5\nh_count 2\n";

    #[test]
    fn ops_05_valid_text_is_read() {
        let scrape = Scrape::parse(GOOD).unwrap();
        assert_eq!(scrape.value("a_total", &[("x", "1\"\n")]), Some(3.0));
        assert_eq!(scrape.sum("a_total", &[]), 4.0);
        assert_eq!(scrape.len(), 6);
    }

    #[test]
    fn ops_05_invalid_text_is_refused() {
        for (from, to) in [
            ("# HELP a_total text\n", ""),
            ("# TYPE a_total counter\n", ""),
            ("counter", "summary"),
            ("a_total 1\n", "a_total -1\n"),
            ("a_total 1\n", "a_total 1\na_total 1\n"),
            ("a_total 1\n", "a_total one\n"),
            ("a_total 1\n", "b_total 1\n"),
            ("a_total{", "a-total{"),
            ("\\n\"", "\\t\""),
            ("h_count 2\n", "h_count 3\n"),
            ("h_count 2\n", "h_count 2"),
            ("le=\"1\"} 1", "le=\"1\"} 5"),
            ("h_sum 3.5\n", ""),
        ] {
            let bad = GOOD.replacen(from, to, 1);
            assert_ne!(bad, GOOD);
            assert!(Scrape::parse(&bad).is_err(), "{from:?} -> {to:?}");
        }
    }
}
