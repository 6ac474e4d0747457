//! Charts of papers' figures from our rows: `out/NAME.svg`, and lines of text with what the paper's
//! figure shows.
//!
//! The papers print curves without numbers, so what is drawn of them beside ours, dashed, is what
//! their text tells: the shape only. At more virtual processors than host cores a time shows no
//! shape; the coherence model has those.

use super::results::{Results, Row, Unit};
use anyhow::{Result, anyhow, ensure};
use plotters::prelude::*;

/// A curve.
pub struct Line {
    pub row: &'static str,
    pub label: &'static str,
}

/// What is drawn of a row at a number of cores.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Axis {
    /// Thousands of operations per second of all cores together.
    Throughput,
    /// As measured.
    PerOperation,
}

/// A curve of the paper, as far as its text tells it: the papers print curves without their
/// numbers. Values are parts of the value at one core; it is drawn dashed, through `row`'s first
/// point.
struct Shape {
    label: &'static str,
    row: &'static str,
    points: &'static [(f64, f64)],
}

/// A paper's figure.
pub struct Figure {
    /// As it is asked for.
    pub name: &'static str,
    pub title: &'static str,
    pub lines: &'static [Line],
    axis: Axis,
    /// What the paper's shows.
    shape: &'static str,
    shapes: &'static [Shape],
}

/// A curve of which the text says only that it falls, or rises.
const FALLS: &[(f64, f64)] = &[(1.0, 1.0), (16.0, 0.5)];
const RISES: &[(f64, f64)] = &[(1.0, 1.0), (16.0, 2.0)];
const FLAT: &[(f64, f64)] = &[(1.0, 1.0), (255.0, 1.0)];

/// Those whose rows exist.
pub const FIGURES: [Figure; 6] = [
    Figure {
        name: "corey.fig1",
        title: "Corey, figure 1: dup and close, each core its own descriptor",
        lines: &[
            Line { row: "dup-close/threads", label: "one table for all (threads)" },
            Line { row: "dup-close/processes", label: "a table each (processes)" },
        ],
        axis: Axis::Throughput,
        shape: "on Linux the total falls with the second core and goes on falling; separate tables would rise with the cores",
        shapes: &[
            Shape { label: "Corey's Linux, threads: falls (direction only)", row: "dup-close/threads", points: FALLS },
            Shape {
                label: "no sharing at all: in step with the cores",
                row: "dup-close/processes",
                points: &[(1.0, 1.0), (255.0, 255.0)],
            },
        ],
    },
    Figure {
        name: "corey.fig7",
        title: "Corey, figure 7a: memclone, first touch of each core's own pages",
        lines: &[
            Line { row: "page-touch/threads", label: "one address space (threads)" },
            Line { row: "page-touch/processes", label: "an address space each (processes)" },
        ],
        axis: Axis::PerOperation,
        shape: "time per page stays nearly flat with an address space each and on Corey, and rises with cores in one Linux address space, to 14 times at 16",
        shapes: &[
            Shape {
                label: "Corey's Linux, threads: 14 times at 16 cores (a straight line to there)",
                row: "page-touch/threads",
                points: &[(1.0, 1.0), (16.0, 14.0)],
            },
            Shape { label: "Corey, and Linux's processes: nearly flat", row: "page-touch/processes", points: FLAT },
        ],
    },
    Figure {
        name: "corey.fig8",
        title: "Corey, figure 8a: short TCP connections of 128 bytes (here over loopback)",
        lines: &[Line { row: "tcp-connections", label: "connections" }],
        axis: Axis::PerOperation,
        shape: "throughput rises with cores until the card is full, on Corey with 5 cores, with driver work on all of them with 11",
        shapes: &[Shape {
            label: "Corey, dedicated core: full at 5 cores (in step with the cores to there)",
            row: "tcp-connections",
            points: &[(1.0, 1.0), (5.0, 5.0), (255.0, 5.0)],
        }],
    },
    Figure {
        name: "corey.fig10",
        title: "Corey, figure 10: a reverse index of words, a text for each core in one address space",
        lines: &[Line { row: "word-index", label: "megabits of text per second, each core" }],
        axis: Axis::PerOperation,
        shape: "Linux keeps up below eight cores; with 16 its copying phase takes 4 times as long as with eight, Corey's gets shorter",
        shapes: &[Shape { label: "no contention: flat for each core", row: "word-index", points: FLAT }],
    },
    Figure {
        name: "barrelfish.fig7",
        title: "Barrelfish, figure 7: changing the protection of a page that is mapped on all cores",
        lines: &[Line { row: "mprotect-cycle", label: "a thread on every core" }],
        axis: Axis::PerOperation,
        shape: "latency rises with the cores on all systems, on Linux and Windows steeper than on Barrelfish",
        shapes: &[Shape { label: "Barrelfish's Linux: rises (direction only)", row: "mprotect-cycle", points: RISES }],
    },
    Figure {
        name: "fos.fig1",
        title: "fos, figure 1: time per core to touch fresh pages",
        lines: &[Line { row: "page-touch/processes", label: "an address space each (processes)" }],
        axis: Axis::PerOperation,
        shape: "on Linux the time per core rises with the cores, beyond eight so much that more cores do less in all; perfect would be flat",
        shapes: &[
            Shape { label: "fos's Linux: rises (direction only)", row: "page-touch/processes", points: RISES },
            Shape { label: "perfect: flat", row: "page-touch/processes", points: FLAT },
        ],
    },
];

type Points = Vec<(f64, f64)>;

/// Draws it to `out/` and says where.
pub fn draw(figure: &Figure, results: &Results) -> Result<()> {
    let path = crate::host::place::out().join(format!("{}.svg", figure.name));
    crate::host::files::write(&path, render(figure, results)?.as_bytes())?;
    println!("{}: {}", figure.name, path.display());
    println!("  the paper's: {} (dashed in the chart, from the paper's text)", figure.shape);
    println!("  ours: {}", in_words(figure, results));
    Ok(())
}

/// Both systems' curves that have a point.
fn curves(figure: &Figure, results: &Results) -> Vec<(String, Points)> {
    let mut all = Vec::new();
    for line in figure.lines {
        for (system, of) in
            [("Pelago", (|row: &Row| row.ours.summary()) as fn(&Row) -> _), ("Linux", |row: &Row| row.linux.summary())]
        {
            let rows = results.rows.iter().filter(|row| row.name == line.row && row.unit != Unit::Instructions);
            let points: Points =
                rows.filter_map(|row| Some((f64::from(row.cpus), value(figure.axis, row.cpus, of(row)?.0)))).collect();
            if !points.is_empty() {
                all.push((format!("{system}, {}", line.label), points));
            }
        }
    }
    all
}

/// The paper's curves over the numbers of cores that were measured, through Linux's first point of
/// their row, or else ours.
fn shapes(figure: &Figure, results: &Results) -> Vec<(String, Points)> {
    let mut all = Vec::new();
    let ours = curves(figure, results);
    let right = ours.iter().flat_map(|(_, points)| points).map(|point| point.0).fold(0.0, f64::max);
    for shape in figure.shapes {
        let Some(line) = figure.lines.iter().find(|line| line.row == shape.row) else { continue };
        let of = |system: &str| ours.iter().find(|(label, _)| *label == format!("{system}, {}", line.label));
        let Some(&(left, first)) = of("Linux").or_else(|| of("Pelago")).and_then(|(_, points)| points.first()) else {
            continue;
        };
        let scale = first / at(shape.points, left);
        let corners = shape.points.iter().map(|point| point.0).filter(|cores| *cores > left && *cores < right);
        let cores = [left].into_iter().chain(corners).chain([right]);
        let points = cores.map(|cores| (cores, scale * at(shape.points, cores))).collect();
        all.push((shape.label.to_owned(), points));
    }
    all
}

/// A curve's value between its points; beyond its last it goes on as it was.
fn at(points: &[(f64, f64)], cores: f64) -> f64 {
    let mut pairs = points.windows(2).map(|pair| (pair[0], pair[1]));
    let Some(((x, y), (next_x, next_y))) = pairs.clone().find(|(_, next)| cores <= next.0).or(pairs.next_back()) else {
        return 1.0;
    };
    y + (next_y - y) * (cores - x) / (next_x - x)
}

fn value(axis: Axis, cpus: u32, measured: f64) -> f64 {
    match axis {
        Axis::Throughput => f64::from(cpus) * 1e6 / measured,
        Axis::PerOperation => measured,
    }
}

fn in_words(figure: &Figure, results: &Results) -> String {
    let change = |points: &Points| match (points.first(), points.last()) {
        (Some(first), Some(last)) if first.0 < last.0 => {
            format!("{:.2} times from {} to {} cores", last.1 / first.1, first.0, last.0)
        }
        _ => "one number of cores only".into(),
    };
    let words: Vec<_> =
        curves(figure, results).iter().map(|(label, points)| format!("{label}: {}", change(points))).collect();
    words.join("; ")
}

fn render(figure: &Figure, results: &Results) -> Result<String> {
    let curves = curves(figure, results);
    ensure!(!curves.is_empty(), "there is no figure to draw; see why in the table above");
    let papers = shapes(figure, results);
    let points = || curves.iter().chain(&papers).flat_map(|(_, points)| points);
    let right = points().map(|point| point.0).fold(2.0, f64::max);
    let top = points().map(|point| point.1).fold(0.0, f64::max) * 1.1;
    let unit = match figure.axis {
        Axis::Throughput => "thousands per second, all cores",
        Axis::PerOperation => {
            let row = results.rows.iter().find(|row| figure.lines.iter().any(|line| line.row == row.name));
            row.map_or("", |row| row.unit.name())
        }
    };
    let mut text = String::new();
    {
        let drawn = |error: DrawingAreaErrorKind<_>| anyhow!("cannot draw: {error}");
        let area = SVGBackend::with_string(&mut text, (800, 500)).into_drawing_area();
        area.fill(&WHITE).map_err(drawn)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(figure.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(80)
            .build_cartesian_2d(0.0..right, 0.0..top)
            .map_err(drawn)?;
        chart.configure_mesh().x_desc("cores").y_desc(unit).draw().map_err(drawn)?;
        for (index, (label, points)) in curves.iter().enumerate() {
            let color = Palette99::pick(index).to_rgba();
            let line = LineSeries::new(points.iter().copied(), color.stroke_width(2)).point_size(3);
            let drawn_line = chart.draw_series(line).map_err(drawn)?;
            drawn_line.label(label).legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], color));
        }
        for (label, points) in &papers {
            let grey = RGBColor(120, 120, 120);
            let line = DashedLineSeries::new(points.iter().copied(), 6, 4, grey.stroke_width(1));
            let drawn_line = chart.draw_series(line).map_err(drawn)?;
            drawn_line
                .label(format!("paper: {label}"))
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 8, y)], grey));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .border_style(BLACK)
            .background_style(WHITE)
            .draw()
            .map_err(drawn)?;
        area.present().map_err(drawn)?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::super::catalogue::ENTRIES;
    use super::super::results::tests::{results, row};
    use super::*;

    #[test]
    fn every_curve_has_its_row() {
        let lines = FIGURES.iter().flat_map(|figure| figure.lines);
        lines.for_each(|line| assert!(ENTRIES.iter().any(|entry| entry.name == line.row), "{}", line.row));
    }

    #[test]
    fn a_chart_has_a_curve_for_each_system_that_has_points() {
        let all = results(vec![
            row("dup-close/threads", 1, &[], &[1000.0]),
            row("dup-close/threads", 2, &[], &[4000.0]),
            row("dup-close/processes", 1, &[2000.0], &[1000.0]),
        ]);
        let text = render(&FIGURES[0], &all).unwrap();
        assert!(text.contains("Linux, one table for all") && text.contains("Pelago, a table each"), "{text}");
        assert!(!text.contains("Pelago, one table"));
        assert!(
            in_words(&FIGURES[0], &all).contains("Linux, one table for all (threads): 0.50 times from 1 to 2 cores")
        );
        assert!(render(&FIGURES[1], &all).is_err());
        assert!(
            text.contains("paper: Corey&apos;s Linux, threads") || text.contains("paper: Corey's Linux, threads"),
            "{text}"
        );
    }

    #[test]
    fn the_papers_shape_goes_through_the_first_point() {
        let all = results(vec![
            row("page-touch/threads", 2, &[300.0], &[400.0]),
            row("page-touch/threads", 4, &[300.0], &[500.0]),
        ]);
        let drawn = shapes(&FIGURES[1], &all);
        let [(label, points)] = &drawn[..] else { panic!("{drawn:?}") };
        assert!(label.contains("14 times"));
        // From 1 at one core to 14 at 16 in a straight line: 28/15 at two, 54/15 at four.
        assert_eq!(points[0], (2.0, 400.0));
        assert!((points[1].1 - 400.0 * 54.0 / 28.0).abs() < 1e-6, "{points:?}");
        assert_eq!(at(FLAT, 8.0), 1.0);
        assert_eq!(at(&[(1.0, 1.0), (5.0, 5.0), (255.0, 5.0)], 9.0), 5.0);
    }

    #[test]
    fn every_shape_belongs_to_a_curve() {
        for figure in &FIGURES {
            assert!(!figure.shapes.is_empty(), "{}", figure.name);
            figure.shapes.iter().for_each(|shape| assert!(figure.lines.iter().any(|line| line.row == shape.row)));
        }
    }
}
