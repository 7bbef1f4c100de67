package io.admissiongateway.samples;

import io.admissiongateway.samples.Pods.Container;
import io.admissiongateway.samples.Pods.PodSpec;
import io.admissiongateway.worker.Review;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.ObjectNode;

/**
 * Sample policies that change the object. Each leaves alone what it finds as it would have it, so that applying one
 * twice is applying it once: the API server may call a policy again after others have changed the object.
 */
final class Mutating {
    private static final Map<String, String> DEFAULT_REQUESTS = Map.of("cpu", "100m", "memory", "128Mi");

    private static final String SIDECAR_NAME = "log-shipper";
    private static final String SIDECAR_IMAGE = "registry.example/log-shipper:1.4.2";

    private Mutating() {}

    static void alwaysPullImages(Review review) {
        PodSpec pod = Pods.specIn(review);
        if (pod == null) {
            return;
        }
        Set<String> settled = new HashSet<>();
        if (pod.isPod() && review.operation().equals("UPDATE")) {
            // The pull policy of a container that exists can no longer be set.
            for (String list : Pods.ALL_LISTS) {
                review.oldObject().path("spec").path(list).forEach(old -> settled.add(old.path("name").asString("")));
            }
        }
        for (Container container : pod.containers(Pods.ALL_LISTS)) {
            if (!settled.contains(container.text("name"))) {
                container.json().put("imagePullPolicy", "Always");
            }
        }
    }

    static void injectSidecar(Review review) {
        PodSpec pod = Pods.specIn(review);
        // A running Pod accepts no further containers, and the API server rejects a Pod without containers.
        if (pod == null || isRunning(pod, review) || pod.spec().path("containers").isEmpty()) {
            return;
        }
        if (pod.containers(Pods.ALL_LISTS).stream().anyMatch(found -> found.text("name").equals(SIDECAR_NAME))) {
            return;
        }
        ObjectNode sidecar = ((ArrayNode) pod.spec().get("containers")).addObject();
        sidecar.put("name", SIDECAR_NAME).put("image", SIDECAR_IMAGE);
        sidecar.withObject("/resources/requests").put("cpu", "10m").put("memory", "32Mi");
        sidecar.withObject("/resources/limits").put("memory", "64Mi");
        review.annotate("sidecar", SIDECAR_NAME);
    }

    static void defaultResources(Review review) {
        PodSpec pod = Pods.specIn(review);
        if (pod == null || isRunning(pod, review)) {
            return;
        }
        for (Container container : pod.containers(List.of("containers", "initContainers"))) {
            JsonNode resources = container.json().path("resources");
            DEFAULT_REQUESTS.forEach(
                    (name, quantity) -> {
                        // For a limit without a request the API server sets the request to the limit.
                        if (!resources.path("requests").has(name) && !resources.path("limits").has(name)) {
                            container.json().withObject("/resources/requests").put(name, quantity);
                        }
                    });
        }
    }

    static void teamFromNamespace(Review review) {
        boolean isNew = review.operation().equals("CREATE") && review.subResource().isEmpty();
        if (!isNew || !review.object().path("metadata").isObject()) {
            return;
        }
        String team = review.namespaceObject().at("/metadata/labels/team").stringValue("");
        JsonNode labels = review.object().path("metadata").path("labels");
        // An explicit patch as an example; setting the label in review.object() has the same effect.
        if (team.isEmpty()) {
            return;
        }
        if (!labels.isObject()) {
            review.patch().add("/metadata/labels", Map.of("team", team));
        } else if (labels.path("team").stringValue("").isEmpty()) {
            review.patch().add("/metadata/labels/team", team);
        }
    }

    private static boolean isRunning(PodSpec pod, Review review) {
        return pod.isPod() && !review.operation().equals("CREATE");
    }
}
