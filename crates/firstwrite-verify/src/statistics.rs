//! A statistical test whether two samples of times have the same distribution.

/// Result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Comparison {
    /// Probability of a difference at least this large if there is none.
    pub(crate) p: f64,
    /// Median of the first sample minus median of the second.
    pub(crate) median_difference: f64,
}

/// The rank-sum test of Mann and Whitney, with ties, by the normal approximation (right from about twenty
/// each on). Ranks, since times have long tails that no mean survives.
pub(crate) fn compare(first: &[f64], second: &[f64]) -> Comparison {
    let mut all: Vec<(f64, bool)> = first
        .iter()
        .map(|time| (*time, true))
        .chain(second.iter().map(|time| (*time, false)))
        .collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (n1, n2) = (count(first.len()), count(second.len()));
    let n = n1 + n2;
    let (mut rank_sum, mut ties) = (0.0, 0.0);
    let mut start = 0;
    while start < all.len() {
        let value = all[start].0;
        let end = start
            + all[start..].iter().take_while(|(other, _)| other.total_cmp(&value).is_eq()).count();
        // Equal times share the mean of the ranks they stand on.
        let rank = (count(start) + 1.0 + count(end)) / 2.0;
        let of_first = all[start..end].iter().filter(|(_, is_first)| *is_first).count();
        rank_sum += rank * count(of_first);
        let tied = count(end - start);
        ties += tied.powi(3) - tied;
        start = end;
    }
    let u = rank_sum - n1 * (n1 + 1.0) / 2.0;
    let variance = n1 * n2 / 12.0 * (n + 1.0 - ties / (n * (n - 1.0)));
    let median_difference = median(first) - median(second);
    if variance <= 0.0 {
        return Comparison { p: 1.0, median_difference };
    }
    // The half is for steps of one where the normal curve is smooth.
    let z = ((u - n1 * n2 / 2.0).abs() - 0.5).max(0.0) / variance.sqrt();
    Comparison { p: two_sided(z), median_difference }
}

pub(crate) fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        length if length % 2 == 1 => sorted[length / 2],
        length => f64::midpoint(sorted[length / 2 - 1], sorted[length / 2]),
    }
}

fn count(number: usize) -> f64 {
    u32::try_from(number).map_or(f64::from(u32::MAX), f64::from)
}

/// The area of the normal curve beyond `z` on both sides, by the continued fraction of the tail; good to
/// six digits where it decides anything.
fn two_sided(z: f64) -> f64 {
    if z < 1.0 {
        // The series of the middle part converges fast here.
        let (mut term, mut sum) = (z, z);
        for k in 1..40_u32 {
            let k = f64::from(k);
            term *= -z * z / (2.0 * k);
            sum += term / (2.0 * k + 1.0);
        }
        return 1.0 - sum * (2.0 / std::f64::consts::PI).sqrt();
    }
    let mut fraction = z;
    for k in (1..=60_u32).rev() {
        fraction = z + f64::from(k) / fraction;
    }
    (-z * z / 2.0).exp() / fraction * (2.0 / std::f64::consts::PI).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_the_normal_curves() {
        // From tables of the normal distribution.
        for (z, p) in
            [(0.0, 1.0), (0.5, 0.617_075), (1.0, 0.317_311), (1.96, 0.049_996), (3.29, 0.001_002)]
        {
            assert!((two_sided(z) - p).abs() < 1e-5, "{z}: {}", two_sided(z));
        }
    }

    #[test]
    fn a_worked_example_comes_out() {
        // U is 1 by hand: of the nine pairs, the first is larger in one.
        let found = compare(&[1.0, 2.0, 5.0], &[4.0, 6.0, 7.0]);
        assert!((found.p - 0.190_43).abs() < 1e-4, "{}", found.p);
        assert!((found.median_difference + 4.0).abs() < 1e-9);
        assert!((compare(&[2.0; 20], &[2.0; 20]).p - 1.0).abs() < 1e-9);
    }

    #[test]
    fn equal_sources_are_seldom_told_apart_and_different_ones_always() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut told = 0;
        for _ in 0..1000 {
            // With a long tail, as times have.
            let mut draw = || (0..24).map(|_| 1.0 / (random.f64() + 0.01)).collect::<Vec<_>>();
            let (a, b) = (draw(), draw());
            told += u32::from(compare(&a, &b).p < 0.01);
            let shifted: Vec<f64> = b.iter().map(|time| time + 200.0).collect();
            assert!(compare(&shifted, &a).p < 1e-6);
        }
        // Ten are expected; twenty-five would be one chance in fifty thousand.
        assert!(told < 25, "{told} of 1000");
    }
}
