package ensue.peers.flinkcep;

import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import org.apache.flink.cep.pattern.conditions.IterativeCondition;

/**
 * A condition written as a tree of lists: {@code ["and", [">", ["field", "price"], 3], ...]}.
 *
 * <p>{@code ["field", f]} is of the event that is judged, {@code ["last", "a", f]} (also first, sum, avg, min, max)
 * of the events that the pattern "a" holds so far, {@code ["count", "a"]} their number. What has no value compares
 * as false.
 */
final class Condition extends IterativeCondition<Event> {
    private final ArrayList<Object> tree;

    Condition(List<?> tree) {
        this.tree = new ArrayList<>(tree);
    }

    @Override
    public boolean filter(Event event, Context<Event> context) throws Exception {
        return Boolean.TRUE.equals(value(tree, event, context));
    }

    private static Object value(Object node, Event event, Context<Event> context) throws Exception {
        if (!(node instanceof List<?> list)) {
            return node;
        }
        String head = (String) list.get(0);
        switch (head) {
            case "true":
                return true;
            case "field":
                return event.fields.get((String) list.get(1));
            case "and":
                for (Object part : list.subList(1, list.size())) {
                    if (!Boolean.TRUE.equals(value(part, event, context))) {
                        return false;
                    }
                }
                return true;
            case "or":
                for (Object part : list.subList(1, list.size())) {
                    if (Boolean.TRUE.equals(value(part, event, context))) {
                        return true;
                    }
                }
                return false;
            case "not":
                return !Boolean.TRUE.equals(value(list.get(1), event, context));
            case "in":
                Object wanted = value(list.get(1), event, context);
                for (Object choice : list.subList(2, list.size())) {
                    if (same(wanted, choice)) {
                        return true;
                    }
                }
                return false;
            case "==", "!=", "<", "<=", ">", ">=":
                return compared(
                        head, value(list.get(1), event, context), value(list.get(2), event, context));
            case "+", "-", "*", "/", "%":
                return computed(
                        head, value(list.get(1), event, context), value(list.get(2), event, context));
            case "abs":
                Object number = value(list.get(1), event, context);
                return number == null ? null : Math.abs(((Number) number).doubleValue());
            case "count":
                return (double) events((String) list.get(1), context).size();
            default:
                return aggregate(head, (String) list.get(1), (String) list.get(2), context);
        }
    }

    private static List<Event> events(String pattern, Context<Event> context) throws Exception {
        List<Event> found = new ArrayList<>();
        for (Event event : context.getEventsForPattern(pattern)) {
            found.add(event);
        }
        return found;
    }

    private static Object aggregate(String name, String pattern, String field, Context<Event> context)
            throws Exception {
        List<Event> found = events(pattern, context);
        if (name.equals("sum")) {
            return found.stream().mapToDouble(e -> number(e, field)).sum();
        }
        if (found.isEmpty()) {
            return null;
        }
        return switch (name) {
            case "first" -> found.get(0).fields.get(field);
            case "last" -> found.get(found.size() - 1).fields.get(field);
            case "avg" -> found.stream().mapToDouble(e -> number(e, field)).average().getAsDouble();
            case "min" -> found.stream().mapToDouble(e -> number(e, field)).min().getAsDouble();
            case "max" -> found.stream().mapToDouble(e -> number(e, field)).max().getAsDouble();
            default -> throw new IllegalArgumentException("unknown in a condition: " + name);
        };
    }

    private static double number(Event event, String field) {
        return ((Number) event.fields.get(field)).doubleValue();
    }

    private static boolean same(Object left, Object right) {
        if (left instanceof Number l && right instanceof Number r) {
            return l.doubleValue() == r.doubleValue();
        }
        return Objects.equals(left, right);
    }

    private static Boolean compared(String sign, Object left, Object right) {
        if (left == null || right == null) {
            return null;
        }
        if (sign.equals("==")) {
            return same(left, right);
        }
        if (sign.equals("!=")) {
            return !same(left, right);
        }
        int order =
                left instanceof Number l && right instanceof Number r
                        ? Double.compare(l.doubleValue(), r.doubleValue())
                        : ((String) left).compareTo((String) right);
        return switch (sign) {
            case "<" -> order < 0;
            case "<=" -> order <= 0;
            case ">" -> order > 0;
            default -> order >= 0;
        };
    }

    private static Double computed(String sign, Object left, Object right) {
        if (left == null || right == null) {
            return null;
        }
        double l = ((Number) left).doubleValue();
        double r = ((Number) right).doubleValue();
        return switch (sign) {
            case "+" -> l + r;
            case "-" -> l - r;
            case "*" -> l * r;
            case "/" -> l / r;
            default -> l % r;
        };
    }
}
