//! Integers as JSON writes them, compared as numbers.

/// The largest integer that every client can hold exactly: 2^53 - 1 (HDR-05).
const MAX_SAFE: i64 = (1 << 53) - 1;

/// The integer value of the JSON number `text`, in any spelling: `42`, `42.0`, `4.2e1`. `None` if it is not a JSON number,
/// not whole, or beyond ±(2^53 - 1). Works on digits, without rounding (T-35).
pub(super) fn integer(text: &str) -> Option<i64> {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (rest, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let power = exponent.map_or("0", |e| e.strip_prefix(['+', '-']).unwrap_or(e));
    let grammatical =
        digits(whole) && (whole == "0" || !whole.starts_with('0')) && fraction.is_none_or(digits) && digits(power);
    if !grammatical {
        return None;
    }
    let fraction = fraction.unwrap_or_default();
    // The value is `significant` followed by `zeros` zeros. A negative count removes digits.
    let all = format!("{whole}{fraction}");
    let significant = all.trim_start_matches('0').trim_end_matches('0');
    if significant.is_empty() {
        return Some(0);
    }
    let trailing = all.len() - all.trim_end_matches('0').len();
    let power: i64 = exponent.map_or(Ok(0), str::parse).ok()?;
    let zeros = power
        .checked_sub(i64::try_from(fraction.len()).ok()?)?
        .checked_add(i64::try_from(trailing).ok()?)?;
    // A negative count leaves a fraction. 2^53 has sixteen digits.
    let zeros = usize::try_from(zeros).ok().filter(|zeros| *zeros <= 16)?;
    if significant.len() + zeros > 16 {
        return None;
    }
    let magnitude: i64 = format!("{significant}{}", "0".repeat(zeros)).parse().ok()?;
    (magnitude <= MAX_SAFE).then_some(if negative { -magnitude } else { magnitude })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// HDR-04, T-35.
    #[test]
    fn hdr_04_one_integer_has_many_spellings() {
        for (text, value) in [
            ("0", 0),
            ("-0", 0),
            ("0.0", 0),
            ("0e99", 0),
            ("0e99999999999999999999", 0),
            ("42", 42),
            ("42.0", 42),
            ("42.000000000000000000000000", 42),
            ("42e0", 42),
            ("42E+0", 42),
            ("4.2e1", 42),
            ("0.42e2", 42),
            ("420e-1", 42),
            ("4200000000000000000000e-20", 42),
            ("0.00000000000000000000042e23", 42),
            ("-7", -7),
            ("-0.7e1", -7),
            ("100", 100),
            ("1e2", 100),
            ("9e15", 9_000_000_000_000_000),
            ("9007199254740991", MAX_SAFE),
            ("-9007199254740991.0", -MAX_SAFE),
        ] {
            assert_eq!(integer(text), Some(value), "{text}");
        }
        for text in [
            "",
            "-",
            "+1",
            "01",
            "-01",
            "00",
            ".5",
            "5.",
            "1.e1",
            "e1",
            "1e",
            "1e+",
            "1e1.0",
            "0x1",
            "1_0",
            " 1",
            "1 ",
            "1,0",
            "--1",
            "1-",
            "NaN",
            "Infinity",
            "\u{661}",
            "true",
            "\"1\"",
            "1.5",
            "15e-1",
            "0.1",
            "1e-1",
            "9007199254740992",
            "-9007199254740992",
            "9.1e15",
            "1e16",
            "1e17",
            "1e400",
            "1e-400",
            "1e99999999999999999999",
            "1e-99999999999999999999",
            "1e9223372036854775807",
            "10e9223372036854775807",
            "0.1e-9223372036854775808",
        ] {
            assert_eq!(integer(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn hdr_04_integers_survive_any_shift_of_the_point(n in -MAX_SAFE..=MAX_SAFE, shift in 0usize..40) {
            prop_assert_eq!(integer(&n.to_string()), Some(n));
            prop_assert_eq!(integer(&format!("{n}.{}", "0".repeat(shift + 1))), Some(n));
            let padding = "0".repeat(if n == 0 { 0 } else { shift });
            prop_assert_eq!(integer(&format!("{n}{padding}e-{shift}")), Some(n));
            let json: serde_json::Value = serde_json::from_str(&n.to_string()).unwrap();
            prop_assert_eq!(json.as_i64(), Some(n));
        }

        #[test]
        fn hdr_04_any_text_is_an_integer_or_not(text in "[-+0-9.eE]{0,12}") {
            // Every accepted integer is a JSON number with the same value.
            if let Some(n) = integer(&text) {
                let value: f64 = serde_json::from_str(&text).unwrap();
                prop_assert_eq!(value, n as f64);
            }
        }
    }
}
