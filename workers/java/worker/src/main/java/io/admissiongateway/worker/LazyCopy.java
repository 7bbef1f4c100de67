package io.admissiongateway.worker;

import java.util.AbstractList;
import java.util.AbstractMap;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.JsonNodeFactory;
import tools.jackson.databind.node.ObjectNode;

/**
 * Copies of JSON whose objects and lists are copied when they are looked at: most policies look at few of them.
 *
 * <p>What is copied must not be changed. A copy may be read by several threads, like any node.
 */
final class LazyCopy {
    private static final JsonNodeFactory NODES = JsonNodeFactory.instance;

    private LazyCopy() {}

    /** Returns a copy: changes of it change nothing else. */
    static JsonNode of(JsonNode node) {
        if (node instanceof ObjectNode object) {
            return new LazyObject(object, new Members(object));
        }
        if (node instanceof ArrayNode list) {
            return new LazyList(list, new Items(list));
        }
        return node.deepCopy();
    }

    /** Whether {@code copy} is a copy of {@code node} in which nothing was changed, as far as can be seen at once. */
    static boolean isUntouched(JsonNode node, JsonNode copy) {
        return copy instanceof LazyObject object && object.source == node && object.members.own == null
                || copy instanceof LazyList list && list.source == node && list.items.own == null;
    }

    private static final class LazyObject extends ObjectNode {
        private static final long serialVersionUID = 1L;

        private final transient ObjectNode source;
        private final transient Members members;

        LazyObject(ObjectNode source, Members members) {
            super(NODES, members);
            this.source = source;
            this.members = members;
        }
    }

    private static final class LazyList extends ArrayNode {
        private static final long serialVersionUID = 1L;

        private final transient ArrayNode source;
        private final transient Items items;

        LazyList(ArrayNode source, Items items) {
            super(NODES, items);
            this.source = source;
            this.items = items;
        }
    }

    private static final class Members extends AbstractMap<String, JsonNode> {
        private final ObjectNode source;

        /** Null until a container in it is looked at, or it is changed. */
        private volatile Map<String, JsonNode> own;

        Members(ObjectNode source) {
            this.source = source;
        }

        private Map<String, JsonNode> own() {
            return own == null ? copied() : own;
        }

        private synchronized Map<String, JsonNode> copied() {
            if (own == null) {
                Map<String, JsonNode> copies = new LinkedHashMap<>(source.size() * 4 / 3 + 1);
                for (Map.Entry<String, JsonNode> member : source.properties()) {
                    copies.put(member.getKey(), of(member.getValue()));
                }
                own = copies;
            }
            return own;
        }

        @Override
        public JsonNode get(Object key) {
            if (own == null) {
                JsonNode found = source.get((String) key);
                if (found == null || found.isValueNode()) {
                    return found;
                }
            }
            return own().get(key);
        }

        @Override
        public boolean containsKey(Object key) {
            return own == null ? source.has((String) key) : own.containsKey(key);
        }

        @Override
        public int size() {
            return own == null ? source.size() : own.size();
        }

        @Override
        public JsonNode put(String key, JsonNode value) {
            return own().put(key, value);
        }

        @Override
        public JsonNode remove(Object key) {
            return own().remove(key);
        }

        @Override
        public void clear() {
            own().clear();
        }

        @Override
        public Set<String> keySet() {
            return own().keySet();
        }

        @Override
        public Collection<JsonNode> values() {
            return own().values();
        }

        @Override
        public Set<Map.Entry<String, JsonNode>> entrySet() {
            return own().entrySet();
        }
    }

    private static final class Items extends AbstractList<JsonNode> {
        private final ArrayNode source;

        /** Null until a container in it is looked at, or it is changed. */
        private volatile List<JsonNode> own;

        Items(ArrayNode source) {
            this.source = source;
        }

        private List<JsonNode> own() {
            return own == null ? copied() : own;
        }

        private synchronized List<JsonNode> copied() {
            if (own == null) {
                List<JsonNode> copies = new ArrayList<>(source.size());
                for (JsonNode item : source) {
                    copies.add(of(item));
                }
                own = copies;
            }
            return own;
        }

        @Override
        public JsonNode get(int index) {
            if (own == null) {
                JsonNode found = source.get(index);
                if (found != null && found.isValueNode()) {
                    return found;
                }
            }
            return own().get(index);
        }

        @Override
        public int size() {
            return own == null ? source.size() : own.size();
        }

        @Override
        public JsonNode set(int index, JsonNode item) {
            return own().set(index, item);
        }

        @Override
        public void add(int index, JsonNode item) {
            own().add(index, item);
            modCount++;
        }

        @Override
        public JsonNode remove(int index) {
            modCount++;
            return own().remove(index);
        }
    }
}
